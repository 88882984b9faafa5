"""What came in: answers and their ids, objects in images, files, tables and tools' formats."""
