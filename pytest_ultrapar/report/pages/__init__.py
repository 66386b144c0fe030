"""HTML pages that show runs, such as `report.html`. Each page is a single, self-contained file."""
