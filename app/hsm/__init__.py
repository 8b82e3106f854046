"""Keys that stay in an HSM, by PKCS#11: which, sessions, signatures, fresh pairs."""
