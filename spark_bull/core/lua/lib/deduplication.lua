-- Jobs that are added once for each deduplication id.
-- @include lib: chunk(listed)

-- The key that shows which job has a deduplication id, of a job that has one.
local function holder_of(change)
  local deduplication_id = redis.call('HGET', change.key, 'deid')
  return deduplication_id and string.sub(change.key, 1, -#change.id - 1) .. 'de:' .. deduplication_id
end

local function holds_deduplication(change)
  local holder = holder_of(change)
  return holder and redis.call('GET', holder) == change.id
end

-- The rule of a job that has none: its deduplication id is taken until it finishes.
local SIMPLE = {}

-- Returns a function of the row that returns its deduplication id, if it has one, and its rule: the members of the
-- option `deduplication`. Nil when no job of the chunk has such an id.
local function deduplications_of(chunk)
  if not chunk.deduplication_id then
    return nil
  end
  local ids, texts, rules = listed(chunk, 'deduplication_id'), listed(chunk, 'deduplication'), {}
  return function(i)
    local text = texts[i]
    if text and not rules[text] then
      rules[text] = cjson.decode(text)
    end
    return ids[i], text and rules[text] or SIMPLE
  end
end
