// Finds where requests begin and end, as strictly as RFC 9112 states it. libevent's parser is lax: it accepts a bare
// line feed, "Content-Length: +5" and a chunk of size "0x5". So a proxy in front of this server could see other
// requests in the same bytes. The scanner sees every byte of a connection first, and what it refuses never reaches
// libevent.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace megatrain {

class RequestScanner {
 public:
  explicit RequestScanner(int64_t max_header_bytes) : max_header_bytes_(max_header_bytes) {}

  // Takes the next bytes of the connection. False if they are refused; no more may be given then.
  bool take(std::string_view bytes);
  // Like take() of `count` bytes, if all of them belong to a body: body bytes need not be examined.
  bool take_body(int64_t count);

  bool refused() const { return status_ != 0; }
  int status() const { return status_; }               // 0: nothing wrong so far
  const std::string& message() const { return why_; }  // for the client
  int64_t request_begin() const { return begin_; }     // bytes of the connection before the current request

 private:
  enum class Part { request_line, headers, body, chunk_size, chunk, chunk_end, trailer };
  enum Named { host, origin, content_length, transfer_encoding, kNamed };

  bool refuse(std::string why, int status = 400);
  bool take_line(std::string_view& bytes);
  bool end_line();
  bool read_request_line();
  bool read_header();
  bool read_named(Named name, std::string_view value);
  bool end_headers();
  bool read_chunk_size();
  void skip(int64_t count);
  void end_request();

  int64_t max_header_bytes_;
  int status_ = 0;
  std::string why_;

  Part part_ = Part::request_line;
  std::string line_;               // the part that has arrived
  int64_t taken_ = 0, begin_ = 0;  // bytes of the connection
  int64_t head_bytes_ = 0;         // of the request, whole lines only
  int64_t left_ = 0;               // bytes of the body or chunk still to come
  bool takes_body_ = false;        // the request's method may have one
  bool is_http_1_0_ = false;
  bool has_[kNamed] = {};
};

}  // namespace megatrain
