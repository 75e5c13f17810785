#include "megatrain/dataset/shorten.h"

#include <algorithm>

#include "megatrain/dataset/sample_store.h"

namespace megatrain {
namespace {

int64_t answer_room(int64_t prompt, int64_t answer, int64_t room) {
  if (answer * 2 < room) return answer;
  if (prompt * 2 < room) return std::min(answer, room - prompt);
  const double share = static_cast<double>(answer) / static_cast<double>(prompt + answer);
  return std::min(answer, static_cast<int64_t>(static_cast<double>(room) * share));
}

}  // namespace

void shorten_turns(std::span<const uint32_t> entries, int64_t most, bool recent, std::vector<uint32_t>& into) {
  into.clear();
  const auto is_trained = [](uint32_t entry) { return (entry & kTrainedBit) != 0; };
  auto at = entries.begin();
  while (at != entries.end() && std::ssize(into) < most) {
    const auto answer = std::find_if(at, entries.end(), is_trained);
    const auto end = std::find_if_not(answer, entries.end(), is_trained);
    const int64_t room = most - std::ssize(into);
    const int64_t answered = answer_room(answer - at, end - answer, room);
    const int64_t asked = std::min<int64_t>(answer - at, room - answered);
    into.insert(into.end(), recent ? answer - asked : at, recent ? answer : at + asked);
    into.insert(into.end(), answer, answer + answered);
    at = end;
  }
}

}  // namespace megatrain
