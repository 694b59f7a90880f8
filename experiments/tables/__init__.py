"""Eight real tables, and how well smoothers predict what was held out of them: into docs/tables.md."""
