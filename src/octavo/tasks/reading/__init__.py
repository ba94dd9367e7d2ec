"""Reading users' data: tables in files and in memory, and the layouts of tagging, reading and search."""
