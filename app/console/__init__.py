"""The web console of officers, operators and auditors: pages over `app.service`."""
