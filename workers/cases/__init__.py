"""An executed update before the judge: its case, the claims made about it, the verdict."""
