-- The groups that this call has met: name -> digits.
local digits_of = {}

-- The 16 digits that stand for the name of a group in keys: a hash, which is also an integer that the score of a ZSET
-- holds exactly.
local function group_digits(name)
  if not digits_of[name] then
    digits_of[name] = string.format('%016.0f', tonumber(string.sub(redis.sha1hex(name), 1, 13), 16))
  end
  return digits_of[name]
end
