"""The texts of the intake page and its mails, in three languages."""
