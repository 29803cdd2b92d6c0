"""The MNIST digits of vicinal's demonstration: `vicinal.datasets.load_mnist` reads them."""
