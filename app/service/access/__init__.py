"""Who may call: keys, tokens and roles."""
