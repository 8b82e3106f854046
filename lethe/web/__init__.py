"""The verifier in JavaScript and the page that runs it."""
