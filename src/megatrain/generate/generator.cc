#include "megatrain/generate/generator.h"

#include <map>

namespace megatrain {

std::vector<Generation> Generator::generate(const std::vector<GenerationRequest>& requests,
                                            const std::set<int32_t>& end_ids, const OnToken& on_token,
                                            const volatile std::sig_atomic_t* stop) {
  for (const GenerationRequest& request : requests) batch_.check(request);
  std::vector<Generation> results(requests.size());
  std::map<DecodeBatch::Ticket, size_t> requested;
  size_t next = 0;
  try {
    for (;;) {
      for (; next < requests.size() && batch_.has_room(); ++next) {
        if (batch_.may_grow(requests[next])) requested[batch_.add(requests[next], end_ids)] = next;
      }
      const bool stopped = stop && *stop != 0;
      if (stopped) {
        for (const auto& [ticket, request] : requested) batch_.drop(ticket);
      }
      if (stopped || batch_.idle()) return results;
      for (const DecodeBatch::Token& token : batch_.step()) {
        if (token.failed) std::rethrow_exception(token.failed);
        const size_t request = requested.at(token.ticket);
        Generation& result = results[request];
        result.ids.push_back(token.id);
        if (token.is_end || (on_token && !on_token(request, token.id))) {
          result.finish = Finish::stop;
          batch_.drop(token.ticket);
        }
      }
    }
  } catch (...) {
    batch_.clear();
    throw;
  }
}

}  // namespace megatrain
