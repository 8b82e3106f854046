"""Published data sets as their authors publish them, written as the .npz that `lethe` reads."""
