-- @include lib: listed

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
