"""What people read on the intake page and in its mails, in three languages."""
