"""`python -m bench` is `python -m bench.run`."""

from bench.run import main

if __name__ == "__main__":
    main()
