"""What leaves the house: SavedModels, `.tflite` files, warm-up requests."""
