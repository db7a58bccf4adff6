-- Notes in `expiry` when the list of waiting jobs has to be looked at again, as one of the jobs of `expired` may be in
-- it: the score of the member '', which is no id.
local function look_again(key, at)
  if redis.call('EXISTS', key.expired) == 1 then
    redis.call('ZADD', key.expiry, string.format('%.0f', at), '')
  end
end
