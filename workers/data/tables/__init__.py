"""Tables of an organisation: Parquet, CSV, Arrow and query results, as typed columns."""
