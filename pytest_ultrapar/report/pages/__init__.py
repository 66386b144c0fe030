"""Pages to look at runs, each a file that needs nothing else: `report.html`."""
