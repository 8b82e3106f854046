"""What people read of certificates and reports, in English, German and French."""
