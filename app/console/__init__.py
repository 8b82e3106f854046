"""The web desk of officers, operators and auditors: pages over `app.service`."""
