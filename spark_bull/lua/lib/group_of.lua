-- The value at a path of names in a JSON object, as a text; nil for none, and for one that is no text or number.
local function value_at(text, path)
  local is_json, value = pcall(cjson.decode, text)
  for _, name in ipairs(path) do
    if not is_json or type(value) ~= 'table' then
      return nil
    end
    value = value[name]
  end
  if type(value) == 'number' then
    return string.format('%.17g', value)
  end
  return type(value) == 'string' and value or nil
end

-- The groups that this call has met: name -> digits.
local digits_of = {}

-- The group of a job, `opts.group.id` or else the value at `path` in its payload, as 16 digits; nil for none. The
-- digits are a hash, which is also an integer that the score of a ZSET holds exactly.
local function group_of(path, opts, data)
  local group = opts and string.find(opts, '"group"', 1, true) and value_at(opts, {'group', 'id'})
  group = group or data and value_at(data, path)
  if group and not digits_of[group] then
    digits_of[group] = string.format('%016.0f', tonumber(string.sub(redis.sha1hex(group), 1, 13), 16))
  end
  return group and digits_of[group]
end
