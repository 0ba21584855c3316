"""``python -m assay`` is the command line."""

from assay_ml import main

if __name__ == "__main__":
    main()
