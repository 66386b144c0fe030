"""HTML pages that show runs, such as `report.html`; each page is one file that needs no others."""
