"""The commands of each verb, as in docs/access.md; written by tools/access_table.py."""

from __future__ import annotations

from typing import Final

COMMANDS: Final = {
    "all": """
client|id client|setname eval evalsha exists hello hget hmget info lindex llen ping pttl scan time type zrange
""",
    "dispatch": """
decrby del get hdel hexists hgetall hincrby hlen hrandfield hset hsetnx incr incrby linsert lpop lpos lpush lrange
lrem lset ltrim mget persist pexpire publish rename rpop rpush sadd scard set sismember spop srandmember srem sscan
strlen unlink wait xadd xlen xtrim zadd zcard zcount zlexcount zmscore zpopmin zrangebylex zrangebyscore zrem
zremrangebyscore zrevrange zrevrangebyscore zscore
""",
    "inspect": """
client|list get hexists hgetall hlen hscan lrange scard sismember smismember sscan xlen xrange xrevrange zcard zcount
zlexcount zmscore zrangebylex zrangebyscore zrevrange zscore
""",
    "process": """
blmove blpop bzpopmin client|unblock decrby del get hdel hexists hgetall hincrby hlen hrandfield hscan hset hsetnx
hvals incr incrby linsert lpop lpos lpush lrange lrem lset ltrim mget persist pexpire pexpireat publish rename rpop
rpush sadd scard set sismember smismember spop srandmember srem sscan strlen subscribe unlink unsubscribe xadd xlen
xread xrevrange xtrim zadd zcard zcount zlexcount zmscore zpopmin zrangebylex zrangebyscore zrem zremrangebylex
zremrangebyscore zrevrange zrevrangebylex zrevrangebyscore zscore
""",
    "collect": """
client|list del get hdel hexists hgetall hincrby hkeys hlen hset hsetnx incr lrange ltrim pexpire rpush sadd scard
smismember srem sscan strlen unlink xadd xinfo xlen xrange xread zadd zcard zcount zmscore zrem zremrangebyrank zscore
""",
    "call": """
decrby del get hdel hlen hrandfield hset incr incrby linsert lpos lpush lrange lrem ltrim persist pexpire pexpireat
publish rpush sadd scard set sismember smismember srem sscan strlen unlink xadd xlen xtrim zadd zcard zcount
zrangebyscore zrem zrevrangebyscore zscore
""",
    "events": """
get hlen hset psubscribe set sismember subscribe unsubscribe xadd xinfo xlen xrange xread xrevrange zscore
""",
    "serve": """
client|list get hexists hgetall hlen hscan hvals lrange psubscribe scard sismember smembers smismember sscan subscribe
unsubscribe xlen xrange xread xrevrange zcard zcount zlexcount zmscore zrangebylex zrangebyscore zrank zrevrange zscan
zscore
""",
    "schedule": """
decrby del get hdel hexists hgetall hincrby hlen hrandfield hset incr incrby linsert lpop lpos lpush lrange lrem lset
ltrim persist pexpire publish rpush sadd scard set strlen unlink wait xadd xlen xtrim zadd zcard zcount zrangebyscore
zrem zremrangebyscore zrevrangebyscore zscan zscore
""",
    "manage": """
decrby del get hdel hexists hgetall hincrby hlen hrandfield hscan hset incr incrby linsert lpop lpos lpush lrange lrem
lset ltrim mget persist pexpire publish rename rpop rpush sadd scard set sismember smismember spop srandmember srem
sscan strlen unlink wait xadd xlen xtrim zadd zcard zcount zlexcount zmscore zpopmin zrangebylex zrangebyscore zrem
zremrangebyscore zrevrange zrevrangebyscore zscore
""",
    "doctor": """
command|info config|get get hexists hgetall hkeys hlen hscan hstrlen lrange memory|usage multi scard sismember
smismember sscan xlen zcard zcount zmscore zrangebyscore zrevrange zscan zscore
""",
    "cluster": """
cluster|info cluster|slots
""",
}
