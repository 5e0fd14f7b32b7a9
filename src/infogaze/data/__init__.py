"""Image sets to train and measure on."""
