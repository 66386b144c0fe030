"""HTML pages that show runs; each page is a single file that needs no others: `report.html`."""
