"""What every route shares: who calls, how bodies are read and bounded, what problems say."""
