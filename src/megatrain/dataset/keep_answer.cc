#include "megatrain/dataset/keep_answer.h"

#include <algorithm>
#include <string>
#include <vector>

namespace megatrain {
namespace {

using Json = nlohmann::ordered_json;

bool has_role(const Json& message, const char* role) {
  const auto found = message.find("role");
  return found != message.end() && *found == role;
}

bool opens_with_system(const Json& messages) {
  return !messages.empty() && (has_role(messages[0], "system") || has_role(messages[0], "developer"));
}

// Where the conversation may begin after its system turn: at the first message of each question, up to the question of
// the last answer.
std::vector<size_t> beginnings(const Json& messages, size_t first) {
  size_t answer = messages.size();
  while (answer > first && !has_role(messages[answer - 1], "assistant")) --answer;
  std::vector<size_t> found;
  for (size_t i = first; i < answer; ++i)
    if (has_role(messages[i], "user") && (i == first || !has_role(messages[i - 1], "user"))) found.push_back(i);
  return found;
}

// The conversation from message `begin` on, after the first `system_bytes` of its system turn; none: without it.
Json part_of(const Json& messages, size_t begin, size_t system_bytes) {
  Json part = Json::array();
  if (system_bytes > 0) {
    part.push_back(messages[0]);
    if (messages[0]["content"].is_string())
      part[0]["content"] = messages[0]["content"].get_ref<const std::string&>().substr(0, system_bytes);
  }
  for (size_t i = begin; i < messages.size(); ++i) part.push_back(messages[i]);
  return part;
}

// The first number in [low, high] for which `holds` is true, if it is false before and true from there on. It has to be
// true for `high`.
size_t first_true(size_t low, size_t high, const std::function<bool(size_t)>& holds) {
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    if (holds(middle))
      high = middle;
    else
      low = middle + 1;
  }
  return high;
}

}  // namespace

KeptAnswer keep_answer(const Json& messages, const std::function<bool(const Json&)>& fits) {
  const bool opens = opens_with_system(messages);
  const Json content = opens && messages[0].contains("content") ? messages[0]["content"] : Json();
  const std::string system = content.is_string() ? content.get<std::string>() : "";
  const size_t whole = opens ? std::max<size_t>(system.size(), 1) : 0;
  const std::vector<size_t> begins = beginnings(messages, opens ? 1 : 0);
  if (begins.empty()) return {};
  const auto fits_from = [&](size_t index) { return fits(part_of(messages, begins[index], whole)); };
  const size_t last = begins.size() - 1;
  if (fits_from(last)) {
    const size_t index = first_true(0, last, fits_from);
    return {.messages = part_of(messages, begins[index], whole), .lost_turns = true};
  }
  const size_t question = begins[last];
  if (!opens || !fits(part_of(messages, question, 0))) return {};
  // Ends of characters, from none to all but the last.
  std::vector<size_t> ends = {0};
  for (size_t i = 1; i < system.size(); ++i)
    if ((system[i] & 0xC0) != 0x80) ends.push_back(i);
  const size_t cut = first_true(0, ends.size() - 1, [&](size_t removed) {
    return fits(part_of(messages, question, ends[ends.size() - 1 - removed]));
  });
  return {.messages = part_of(messages, question, ends[ends.size() - 1 - cut]),
          .lost_turns = question > 1,
          .shortened_system = true};
}

}  // namespace megatrain
