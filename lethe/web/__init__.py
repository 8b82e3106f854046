"""The verifier in JavaScript and the page that runs it: files, and where they are."""
