"""One instance of a Python limiter, driven by lines of JSON; package main of the folder above has the other end and says what they mean."""

import concurrent.futures
import json
import sys
import threading
import time

settings = json.loads(sys.argv[1])

# The limiter reads the time from time.time. It is put off before it is loaded; what is reported is the machine's own time.
real = time.time
time.time = lambda: real() + settings["skewMs"] / 1000

from limits import RateLimitItemPerSecond, storage, strategies  # noqa: E402

shelf = storage.RedisStorage("redis://" + settings["store"])
# A moving window, the strictest of its strategies; a rate only.
limiter = strategies.MovingWindowRateLimiter(shelf)
limit = RateLimitItemPerSecond(settings["rate"], namespace=settings["name"])

mouth = threading.Lock()


def say(**line):
    with mouth:
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()


def micros():
    return round(real() * 1e6)


def one(call):
    asked = micros()
    try:
        if limiter.hit(limit, "budget"):
            say(id=call["id"], **{"is": "admitted"}, asked=asked, at=micros())
            time.sleep(call["holdMs"] / 1000)
            say(id=call["id"], **{"is": "over"}, at=micros())
            return
        reset = limiter.get_window_stats(limit, "budget")[0]
        retry = max(0, round((reset - time.time()) * 1000))
        say(id=call["id"], **{"is": "refused"}, asked=asked, at=micros(), retryMs=retry)
    except Exception as err:
        say(id=call["id"], **{"is": "failed"}, asked=asked, at=micros(), error=str(err) or repr(err))


shelf.check()
say(**{"is": "ready"})
with concurrent.futures.ThreadPoolExecutor(64) as pool:
    for line in sys.stdin:
        pool.submit(one, json.loads(line))
