-- Numbers, times, lists and JSON.
-- @include lib: values(finite_number is_true)

-- The number in a field of a hash or an option, which others may have written; nil for none, NaN, and what no double
-- holds exactly.
local function finite_number(text)
  local number = tonumber(text)
  return number and math.abs(number) <= 9007199254740991 and number or nil
end

-- The whole number >= 0 in a field of a hash or an option; a fraction is cut off. 0 for anything else.
local function whole_number(text)
  return math.max(0, math.floor(finite_number(text) or 0))
end

-- Whether JavaScript takes a value of JSON for true.
local function is_true(value)
  return value ~= nil and value ~= cjson.null and value ~= false and value ~= 0 and value ~= ''
end

-- A job's priority; 0 for none, for a text that is not a number, and for a key that is not a hash.
local function priority_of(job_key)
  return whole_number(redis.pcall('HGET', job_key, 'priority'))
end

-- Returns a table of the texts of numbers, which formats each number once: Redis formats number arguments as doubles with
-- 17 digits, which costs more than the rest of writing a small field. A table costs a fraction of a function call.
local function number_texts()
  return setmetatable({}, {
    __index = function(known, number)
      local text = string.format('%.0f', number)
      known[number] = text
      return text
    end,
  })
end

-- The time of Redis, ms since 1970.
local function time_ms()
  local now = call('TIME')
  return now[1] * 1000 + math.floor(now[2] / 1000)
end

-- The set of the values of a list: value -> true.
local function set_of(values)
  local set = {}
  for i = 1, #values do
    set[values[i]] = true
  end
  return set
end

-- Name -> position in the list.
local function positions_of(names)
  local positions = {}
  for i, name in ipairs(names) do
    positions[name] = i
  end
  return positions
end

-- The greatest whole number that differs from its neighbours in Lua, and in Node.
local LARGEST = 9007199254740991

-- Takes the next `count` numbers for the ids of jobs; returns the last one. Fails before anything is written when they
-- are too large, or the counter is no whole number.
local function take_numbers(key, count)
  local counter = call('GET', key.id) or '0'
  if not string.match(counter, '^-?%d+$') or tonumber(counter) + count > LARGEST then
    error('WRONGTYPE expected ' .. key.id .. ' to be a number below 2^53, found \'' .. counter .. '\'', 0)
  end
  return call('INCRBY', key.id, count)
end

-- The id of a job without a custom id: its number, or the next one whose key nobody has. Bull and BullMQ would overwrite
-- a job there, and fail at a key of another type.
local function free_id(key, base, number)
  local job_id = string.format('%.0f', number)
  while call('EXISTS', base .. job_id) == 1 do
    job_id = string.format('%.0f', take_numbers(key, 1))
  end
  return job_id
end

-- JSON that others may have written.

-- The value of JSON text, nil for what is none. Half of a pair of UTF-16, which JavaScript writes as an escape and cjson
-- rejects, becomes U+FFFD, as Node sends it.
local function json_of(text)
  local is_json, value = pcall(cjson.decode, text)
  if not is_json and string.find(text, '\\u[dD][89a-fA-F]') then
    -- JSON has no control characters: \1 stands for the backslash of what is whole.
    text = string.gsub(text, '\\\\', '\1\1')
    text = string.gsub(text, '\\(u[dD][89abAB]%x%x)\\(u[dD][c-fC-F]%x%x)', '\1%1\1%2')
    text = string.gsub(text, '\\u[dD][89a-fA-F]%x%x', '\\ufffd')
    is_json, value = pcall(cjson.decode, (string.gsub(text, '\1', '\\')))
  end
  return is_json and value or nil
end

-- The options of a job, {} for a text that is no JSON object.
local function options_of(text)
  local parsed = json_of(text or '')
  return type(parsed) == 'table' and parsed or {}
end

-- The command that pushes a job to the end of the waiting list that its options name.
local function push_of(opts)
  -- Few jobs have this option, and reading JSON takes time.
  if not string.find(opts or '', 'lifo', 1, true) then
    return 'LPUSH'
  end
  return is_true(options_of(opts).lifo) and 'RPUSH' or 'LPUSH'
end
