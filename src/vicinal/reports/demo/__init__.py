"""The demonstration: private predictions on public images, and the page that shows them."""
