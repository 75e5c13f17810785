// What a server has done, in the text format of Prometheus. From any thread.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace megatrain {

class ServeMetrics {
 public:
  void add_request(const std::string& endpoint, int status);
  void add_prompt_tokens(int64_t tokens);
  void add_queue_s(double seconds);        // from a request's arrival to its first answer's start
  void add_first_token_s(double seconds);  // from a request's arrival
  void add_answer_s(double seconds);       // from a request's arrival to its end

  struct Now {
    int64_t running = 0, waiting = 0, places = 0;
    int64_t generated_tokens = 0, reused_tokens = 0;
    double most_wait_s = 0;
  };
  std::string text(const Now& now) const;

 private:
  struct Histogram {
    std::vector<int64_t> counts;  // by bucket, then those beyond all
    double sum = 0;
    void add(double seconds);
    int64_t count() const;
  };
  static void write(std::string& out, const char* name, const char* help, const Histogram& histogram);

  mutable std::mutex mutex_;
  std::map<std::pair<std::string, int>, int64_t> requests_;  // by endpoint and status
  int64_t prompt_tokens_ = 0;
  Histogram queue_, first_token_, answer_;
};

}  // namespace megatrain
