"""The pages of the web app, a module each; `draw` draws the page."""
