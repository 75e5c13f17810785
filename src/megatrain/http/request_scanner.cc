#include "megatrain/http/request_scanner.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include <fmt/format.h>

namespace megatrain {

namespace {

constexpr size_t kMostDigits = 15;  // of a length: far above every limit, and within 64 bits

bool is_one_of(char c, std::string_view set) { return set.find(c) != std::string_view::npos; }

bool is_token(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           is_one_of(c, "!#$%&'*+-.^_`|~");
  });
}

bool is_target(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < '\x7f'; });
}

bool has_control(std::string_view text) {
  return std::any_of(text.begin(), text.end(), [](unsigned char c) { return (c < ' ' && c != '\t') || c == 0x7f; });
}

// A number without sign, prefix or blanks; -1 if it is malformed.
int64_t number_of(std::string_view text, int base) {
  int64_t number = 0;
  if (text.empty() || text.size() > kMostDigits || is_one_of(text[0], "+-")) return -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  return error == std::errc() && end == text.data() + text.size() ? number : -1;
}

bool same_name(std::string_view a, std::string_view lower) {
  return std::equal(a.begin(), a.end(), lower.begin(), lower.end(),
                    [](char c, char d) { return (c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c) == d; });
}

struct Known {
  std::string_view lower;
  const char* shown;
};
constexpr Known kNames[] = {{"host", "Host"},
                            {"origin", "Origin"},
                            {"content-length", "Content-Length"},
                            {"transfer-encoding", "Transfer-Encoding"}};

}  // namespace

bool RequestScanner::refuse(std::string why, int status) {
  why_ = std::move(why);
  status_ = status;
  return false;
}

bool RequestScanner::take(std::string_view bytes) {
  while (!bytes.empty()) {
    if (part_ == Part::body || part_ == Part::chunk) {
      const auto count = std::min<int64_t>(left_, std::ssize(bytes));
      bytes.remove_prefix(static_cast<size_t>(count));
      skip(count);
    } else if (!take_line(bytes)) {
      return false;
    }
  }
  return true;
}

bool RequestScanner::take_body(int64_t count) {
  if ((part_ != Part::body && part_ != Part::chunk) || count > left_) return false;
  skip(count);
  return true;
}

void RequestScanner::skip(int64_t count) {
  taken_ += count;
  left_ -= count;
  if (left_ > 0) return;
  if (part_ == Part::chunk) {
    part_ = Part::chunk_end;
  } else {
    end_request();
  }
}

// libevent reads a line once its line feed has arrived, so the line has to be checked then.
bool RequestScanner::take_line(std::string_view& bytes) {
  const size_t end = bytes.find('\n');
  const size_t count = std::min(end, bytes.size());
  const bool in_head = part_ == Part::request_line || part_ == Part::headers;
  const int64_t most = in_head ? max_header_bytes_ - head_bytes_ : int64_t{64};  // a chunk's size is short
  if (std::ssize(line_) + static_cast<int64_t>(count) > most) {
    if (!in_head) return refuse("a line between two chunks of the body is too long");
    return refuse(fmt::format("the request line and the headers have more than {} bytes", max_header_bytes_), 431);
  }
  line_ += bytes.substr(0, count);
  bytes.remove_prefix(std::min(count + 1, bytes.size()));
  taken_ += static_cast<int64_t>(count);
  if (end == std::string_view::npos) return true;
  ++taken_;
  head_bytes_ += in_head ? std::ssize(line_) + 1 : 0;
  if (!line_.ends_with('\r')) return refuse("a line ends in a bare line feed; expected CRLF");
  line_.pop_back();
  const bool good = end_line();
  line_.clear();
  return good;
}

bool RequestScanner::end_line() {
  switch (part_) {
    case Part::request_line: return read_request_line();
    case Part::headers: return line_.empty() ? end_headers() : read_header();
    case Part::chunk_size: return read_chunk_size();
    case Part::chunk_end:
      if (!line_.empty()) return refuse("a chunk of the body has more bytes than its size says");
      part_ = Part::chunk_size;
      return true;
    case Part::trailer:
      if (!line_.empty()) return refuse("headers after a chunked body are not supported; send them before it");
      end_request();
      return true;
    case Part::body:
    case Part::chunk: break;
  }
  return true;
}

bool RequestScanner::read_request_line() {
  const std::string_view line = line_;
  const size_t first = line.find(' '), last = line.rfind(' ');
  const std::string_view method = line.substr(0, std::min(first, line.size()));
  const std::string_view version = last < line.size() ? line.substr(last + 1) : "";
  const bool good = first < last && last < line.size() && is_token(method) &&
                    is_target(line.substr(first + 1, last - first - 1)) &&
                    (version == "HTTP/1.1" || version == "HTTP/1.0");
  if (!good)
    return refuse("the request line is malformed; expected METHOD, path and HTTP/1.1, separated by single spaces");
  constexpr std::string_view kWithBody[] = {"POST", "PUT", "PATCH", "GET", "DELETE", "OPTIONS"};  // as in libevent
  takes_body_ = std::find(std::begin(kWithBody), std::end(kWithBody), method) != std::end(kWithBody);
  is_http_1_0_ = version == "HTTP/1.0";
  part_ = Part::headers;
  return true;
}

bool RequestScanner::read_header() {
  const std::string_view line = line_;
  if (is_one_of(line[0], " \t")) return refuse("a header continues on a second line; write it on one");
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos || !is_token(line.substr(0, colon)))
    return refuse("a header is malformed; expected NAME: VALUE, without a space before the colon");
  if (has_control(line)) return refuse("a header contains a control character");
  // Strips only blanks, like libevent, so a length or coding next to a tab is refused.
  std::string_view value = line.substr(colon + 1);
  value.remove_prefix(std::min(value.find_first_not_of(' '), value.size()));
  value = value.substr(0, value.find_last_not_of(' ') + 1);
  for (int name = 0; name < kNamed; ++name) {
    if (same_name(line.substr(0, colon), kNames[name].lower)) return read_named(static_cast<Named>(name), value);
  }
  return true;
}

// These headers decide where the request ends or who sent it. If one appears twice, others may use the other value.
bool RequestScanner::read_named(Named name, std::string_view value) {
  if (std::exchange(has_[name], true)) return refuse(fmt::format("duplicate header {}", kNames[name].shown));
  if (name == content_length) {
    left_ = number_of(value, 10);
    if (left_ < 0) return refuse("Content-Length is not a number; expected digits only");
  }
  if (name == transfer_encoding && !same_name(value, "chunked"))
    return refuse("Transfer-Encoding is not 'chunked', the only one that is supported");
  return true;
}

bool RequestScanner::end_headers() {
  if (has_[content_length] && has_[transfer_encoding])
    return refuse("Content-Length and Transfer-Encoding contradict each other; send one of them");
  if (has_[transfer_encoding] && is_http_1_0_) return refuse("HTTP/1.0 has no Transfer-Encoding");
  const bool has_body = has_[transfer_encoding] || left_ > 0;
  if (has_body && !takes_body_) return refuse("a request of this method has no body");
  if (!has_body) {
    end_request();
  } else {
    part_ = has_[transfer_encoding] ? Part::chunk_size : Part::body;
  }
  return true;
}

bool RequestScanner::read_chunk_size() {
  left_ = number_of(line_, 16);
  if (left_ < 0) return refuse("the size of a chunk of the body is malformed; expected hexadecimal digits only");
  part_ = left_ > 0 ? Part::chunk : Part::trailer;
  return true;
}

void RequestScanner::end_request() {
  part_ = Part::request_line;
  begin_ = taken_;
  head_bytes_ = left_ = 0;
  std::fill(std::begin(has_), std::end(has_), false);
}

}  // namespace megatrain
