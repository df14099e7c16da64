"""What the methods of the forecaster do, one module for each."""
