"""Limits in a plain script: three greetings an hour for one name, and five in all.

    $ python examples/rules_plain.py
"""

from tollway import Or, RateLimit, RateLimitExceeded

rl = RateLimit()  # RateLimit("redis://localhost") shares the counts with whoever else names it.


class Friend:
    def __init__(self, name):
        self.name = name

    @rl.limit(Or("5/h", "name:3/h"))
    def greet(self):
        print(f"hello, {self.name}")


def main():
    for name in ["vova"] * 4 + ["anna"] * 3:
        try:
            Friend(name).greet()
        except RateLimitExceeded as too_many:
            print(f"not {name}: {too_many}")

    logins = rl.limit("name:2/m", key="logins")
    print([logins.ask(name="vova").allowed for _ in range(3)])

    with rl.limit("1/h", key="report"):
        print("the report of this hour")


if __name__ == "__main__":
    main()
