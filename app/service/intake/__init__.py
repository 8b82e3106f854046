"""What people without tools ask for: codes that prove an identity, cases that follow."""
