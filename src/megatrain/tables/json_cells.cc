#include "megatrain/tables/json_cells.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/tables/json_quote.h"
#include "megatrain/tables/json_times.h"

namespace megatrain {

enum class CellKind {
  null,
  boolean,
  int8,
  uint8,
  int16,
  uint16,
  int32,
  uint32,
  int64,
  uint64,
  float16,
  float32,
  float64,
  text,        // 32-bit offsets
  long_text,   // 64-bit offsets
  text_view,   // views of 16 bytes
  fixed_text,  // `width` bytes each
  decimal,     // `width` bytes each
  days,
  milliseconds_of_days,
  time32,
  time64,
  timestamp,
  duration,
  list,
  long_list,
  list_view,
  long_list_view,
  fixed_list,  // `width` values each
  structure,
  map,
  other,
};

namespace {

constexpr int kMaxDepth = 64;  // as for JSON

struct RowTooLong {};

[[noreturn]] void fail_outside() { fail_input("is damaged: a value points outside of its column; get it again."); }

}  // namespace

// A column, or a part of a nested one.
struct JsonCells::Node {
  CellKind kind = CellKind::other;
  std::string key;   // `"name": `, in a struct
  std::string type;  // Arrow's format
  int64_t width = 0;
  int scale = 0;           // of decimals
  int64_t per_second = 1;  // of times
  bool utc = false;
  std::vector<Node> children;
  std::unique_ptr<Node> dictionary;  // its values; this node is then the index
  const ArrowArray* array = nullptr;

  template <class T>
  T value(int64_t at, int buffer = 1) const {
    T value;
    std::memcpy(&value, static_cast<const char*>(array->buffers[buffer]) + at * static_cast<int64_t>(sizeof(T)),
                sizeof(T));
    return value;
  }
};

namespace {

using Node = JsonCells::Node;

bool read_kind(std::string_view format, Node& node) {
  struct Simple {
    std::string_view format;
    CellKind kind;
  };
  constexpr Simple kSimple[] = {
      {"n", CellKind::null},       {"b", CellKind::boolean},     {"c", CellKind::int8},
      {"C", CellKind::uint8},      {"s", CellKind::int16},       {"S", CellKind::uint16},
      {"i", CellKind::int32},      {"I", CellKind::uint32},      {"l", CellKind::int64},
      {"L", CellKind::uint64},     {"e", CellKind::float16},     {"f", CellKind::float32},
      {"g", CellKind::float64},    {"u", CellKind::text},        {"z", CellKind::text},
      {"U", CellKind::long_text},  {"Z", CellKind::long_text},   {"vu", CellKind::text_view},
      {"vz", CellKind::text_view}, {"tdD", CellKind::days},      {"tdm", CellKind::milliseconds_of_days},
      {"tts", CellKind::time32},   {"ttm", CellKind::time32},    {"ttu", CellKind::time64},
      {"ttn", CellKind::time64},   {"tDs", CellKind::duration},  {"tDm", CellKind::duration},
      {"tDu", CellKind::duration}, {"tDn", CellKind::duration},  {"+l", CellKind::list},
      {"+L", CellKind::long_list}, {"+vl", CellKind::list_view}, {"+vL", CellKind::long_list_view},
      {"+s", CellKind::structure}, {"+m", CellKind::map},
  };
  for (const Simple& simple : kSimple) {
    if (simple.format == format) {
      node.kind = simple.kind;
      return true;
    }
  }
  return false;
}

[[noreturn]] void fail_type() { fail_input("is damaged: a column has a malformed type; get it again."); }

bool is_list(CellKind kind) {
  return kind == CellKind::list || kind == CellKind::long_list || kind == CellKind::list_view ||
         kind == CellKind::long_list_view || kind == CellKind::fixed_list || kind == CellKind::map;
}

int64_t number_at(std::string_view& text) {
  int64_t number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0 || number > std::numeric_limits<int32_t>::max()) fail_type();
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  if (text.starts_with(',')) text.remove_prefix(1);
  return number;
}

int64_t per_second(char unit) {
  return unit == 's' ? 1 : unit == 'm' ? 1'000 : unit == 'u' ? 1'000'000 : 1'000'000'000;
}

void read_type(std::string_view format, Node& node) {
  node.type = format;
  if (format.starts_with("tt") || format.starts_with("tD")) node.per_second = per_second(format.back());
  if (read_kind(format, node)) return;
  if (format.starts_with("ts") && format.size() >= 4) {
    node.kind = CellKind::timestamp;
    node.per_second = per_second(format[2]);
    node.utc = format.size() > 4;  // it has a time zone; the values are in UTC
  } else if (format.starts_with("w:") || format.starts_with("+w:")) {
    node.kind = format[0] == '+' ? CellKind::fixed_list : CellKind::fixed_text;
    format.remove_prefix(format.find(':') + 1);
    node.width = number_at(format);
  } else if (format.starts_with("d:")) {
    format.remove_prefix(2);
    number_at(format);  // the digits
    const int64_t scale = format.starts_with('-') ? -1 : number_at(format);
    const int64_t bits = format.empty() ? 128 : number_at(format);
    if (scale < 0 || scale > 38 || (bits != 32 && bits != 64 && bits != 128)) return;
    node.kind = CellKind::decimal;
    node.scale = static_cast<int>(scale);
    node.width = bits / 8;
  }
}

Node make_node(const ArrowSchema& schema, int depth) {
  if (depth > kMaxDepth)
    fail_input(fmt::format("has a column that nests deeper than {} levels; make it flatter.", kMaxDepth));
  Node node;
  append_json_quoted(node.key, schema.name == nullptr ? "" : schema.name);
  node.key += ": ";
  read_type(schema.format, node);
  for (int64_t i = 0; i < schema.n_children; ++i) node.children.push_back(make_node(*schema.children[i], depth + 1));
  if (is_list(node.kind) && node.children.size() != 1) fail_type();
  if (node.kind == CellKind::map && node.children.front().children.size() != 2) fail_type();
  if (schema.dictionary != nullptr) node.dictionary = std::make_unique<Node>(make_node(*schema.dictionary, depth + 1));
  return node;
}

void bind_node(Node& node, const ArrowArray& array) {
  if (array.n_children != std::ssize(node.children) || (array.dictionary != nullptr) != (node.dictionary != nullptr))
    fail_outside();
  node.array = &array;
  for (size_t i = 0; i < node.children.size(); ++i) bind_node(node.children[i], *array.children[i]);
  if (node.dictionary != nullptr) bind_node(*node.dictionary, *array.dictionary);
}

bool is_null(const Node& node, int64_t at) {
  if (node.kind == CellKind::null) return true;
  if (node.array->null_count == 0 || node.array->buffers[0] == nullptr) return false;
  return ((static_cast<const uint8_t*>(node.array->buffers[0])[at / 8] >> (at % 8)) & 1) == 0;
}

class CellWriter {
 public:
  CellWriter(std::string& out, int64_t most_bytes) : out_(out), most_(out.size() + static_cast<size_t>(most_bytes)) {}

  // `row` counts from the beginning of the node's array.
  void write(const Node& node, int64_t row) {
    if (row < 0 || row >= node.array->length) fail_outside();
    const int64_t at = node.array->offset + row;
    if (out_.size() > most_) throw RowTooLong();
    if (is_null(node, at)) {
      out_ += "null";
    } else if (node.dictionary != nullptr) {
      write(*node.dictionary, integer(node, at));
    } else {
      write_value(node, at);
    }
  }

 private:
  void write_value(const Node& node, int64_t at) {
    switch (node.kind) {
      case CellKind::null: out_ += "null"; break;
      case CellKind::boolean: {
        const auto* const bits = static_cast<const uint8_t*>(node.array->buffers[1]);
        out_ += ((bits[at / 8] >> (at % 8)) & 1) != 0 ? "true" : "false";
        break;
      }
      case CellKind::uint64: number(node.value<uint64_t>(at)); break;
      case CellKind::int8:
      case CellKind::uint8:
      case CellKind::int16:
      case CellKind::uint16:
      case CellKind::int32:
      case CellKind::uint32:
      case CellKind::int64: number(integer(node, at)); break;
      case CellKind::float16: real(half(node.value<uint16_t>(at))); break;
      case CellKind::float32: real(static_cast<double>(node.value<float>(at))); break;
      case CellKind::float64: real(node.value<double>(at)); break;
      case CellKind::text: text<int32_t>(node, at); break;
      case CellKind::long_text: text<int64_t>(node, at); break;
      case CellKind::text_view: view(node, at); break;
      case CellKind::fixed_text:
        quoted(static_cast<const char*>(node.array->buffers[1]) + at * node.width, node.width);
        break;
      case CellKind::decimal: decimal(node, at); break;
      case CellKind::days: append_date(quote(), node.value<int32_t>(at)), out_ += '"'; break;
      case CellKind::milliseconds_of_days:
        append_timestamp(quote(), node.value<int64_t>(at), 1000, false), out_ += '"';
        break;
      case CellKind::time32: append_time(quote(), node.value<int32_t>(at), node.per_second), out_ += '"'; break;
      case CellKind::time64: append_time(quote(), node.value<int64_t>(at), node.per_second), out_ += '"'; break;
      case CellKind::timestamp:
        append_timestamp(quote(), node.value<int64_t>(at), node.per_second, node.utc), out_ += '"';
        break;
      case CellKind::duration:
        real(static_cast<double>(node.value<int64_t>(at)) / static_cast<double>(node.per_second));
        break;
      case CellKind::list: list(node, node.value<int32_t>(at), node.value<int32_t>(at + 1)); break;
      case CellKind::long_list: list(node, node.value<int64_t>(at), node.value<int64_t>(at + 1)); break;
      case CellKind::list_view: {
        const int64_t begin = node.value<int32_t>(at);
        list(node, begin, begin + node.value<int32_t>(at, 2));
        break;
      }
      case CellKind::long_list_view: {
        const auto begin = node.value<int64_t>(at);
        list(node, begin, begin + node.value<int64_t>(at, 2));
        break;
      }
      case CellKind::fixed_list: list(node, at * node.width, (at + 1) * node.width); break;
      case CellKind::structure: structure(node, at); break;
      case CellKind::map: map(node, node.value<int32_t>(at), node.value<int32_t>(at + 1)); break;
      case CellKind::other:
        out_ += "{\"unknown Arrow type\": ";
        append_json_quoted(out_, node.type);
        out_ += '}';
        break;
    }
  }

  static int64_t integer(const Node& node, int64_t at) {
    switch (node.kind) {
      case CellKind::int8: return node.value<int8_t>(at);
      case CellKind::uint8: return node.value<uint8_t>(at);
      case CellKind::int16: return node.value<int16_t>(at);
      case CellKind::uint16: return node.value<uint16_t>(at);
      case CellKind::int32: return node.value<int32_t>(at);
      case CellKind::uint32: return node.value<uint32_t>(at);
      case CellKind::int64:
      case CellKind::uint64: return node.value<int64_t>(at);
      default: fail_outside();
    }
  }

  static double half(uint16_t bits) {
    const int exponent = (bits >> 10) & 31;
    const int fraction = bits & 1023;
    double value = exponent == 0    ? std::ldexp(fraction, -24)
                   : exponent == 31 ? std::numeric_limits<double>::infinity()
                                    : std::ldexp(1024 + fraction, exponent - 25);
    return (bits & 0x8000) != 0 ? -value : value;
  }

  template <class T>
  void number(T value) {
    char digits[32];
    out_.append(digits, std::to_chars(std::begin(digits), std::end(digits), value).ptr);
  }

  void real(double value) {
    if (!std::isfinite(value)) {
      out_ += "null";
      return;
    }
    char digits[40];
    const std::string_view text(digits, static_cast<size_t>(std::to_chars(digits, digits + 40, value).ptr - digits));
    out_ += text;
    if (text.find_first_of(".e") == std::string_view::npos) out_ += ".0";
  }

  std::string& quote() { return out_ += '"'; }

  void quoted(const char* begin, int64_t bytes) {
    if (out_.size() + static_cast<size_t>(bytes) > most_) throw RowTooLong();
    append_json_quoted(out_, std::string_view(begin, static_cast<size_t>(bytes)));
  }

  template <class Offset>
  void text(const Node& node, int64_t at) {
    const int64_t begin = node.value<Offset>(at), end = node.value<Offset>(at + 1);
    if (begin < 0 || end < begin) fail_outside();
    quoted(static_cast<const char*>(node.array->buffers[2]) + begin, end - begin);
  }

  // Up to twelve bytes stand in the view itself, longer ones in a buffer that it names.
  void view(const Node& node, int64_t at) {
    constexpr int64_t kViewBytes = 16, kInside = 12;
    const char* const view = static_cast<const char*>(node.array->buffers[1]) + at * kViewBytes;
    int32_t bytes = 0, buffer = 0, begin = 0;
    std::memcpy(&bytes, view, sizeof bytes);
    std::memcpy(&buffer, view + 8, sizeof buffer);
    std::memcpy(&begin, view + 12, sizeof begin);
    if (bytes < 0) fail_outside();
    if (bytes <= kInside) {
      quoted(view + 4, bytes);
      return;
    }
    const int64_t buffers = node.array->n_buffers - 3;  // without validity, views and the buffers' sizes
    if (buffer < 0 || buffer >= buffers || begin < 0) fail_outside();
    const int64_t size = static_cast<const int64_t*>(node.array->buffers[node.array->n_buffers - 1])[buffer];
    if (int64_t{begin} + bytes > size) fail_outside();
    quoted(static_cast<const char*>(node.array->buffers[2 + buffer]) + begin, bytes);
  }

  void decimal(const Node& node, int64_t at) {
    __extension__ using Wide = __int128;
    const Wide value = node.width == 4   ? Wide{node.value<int32_t>(at)}
                       : node.width == 8 ? Wide{node.value<int64_t>(at)}
                                         : node.value<Wide>(at);
    __extension__ using Digits = unsigned __int128;
    Digits rest = value < 0 ? Digits{0} - static_cast<Digits>(value) : static_cast<Digits>(value);
    std::string digits;  // the last one first
    for (; rest != 0 || std::ssize(digits) <= node.scale; rest /= 10) {
      digits += static_cast<char>('0' + static_cast<int>(rest % 10));
    }
    if (node.scale > 0) digits.insert(static_cast<size_t>(node.scale), 1, '.');
    out_ += '"';
    if (value < 0) out_ += '-';
    out_.append(digits.rbegin(), digits.rend());
    out_ += '"';
  }

  void list(const Node& node, int64_t begin, int64_t end) {
    if (begin < 0 || end < begin) fail_outside();
    out_ += '[';
    for (int64_t i = begin; i < end; ++i) {
      if (i > begin) out_ += ", ";
      write(node.children.front(), i);
    }
    out_ += ']';
  }

  void structure(const Node& node, int64_t at) {
    out_ += '{';
    bool first = true;
    for (const Node& child : node.children) {
      if (!std::exchange(first, false)) out_ += ", ";
      out_ += child.key;
      write(child, at);
    }
    out_ += '}';
  }

  // A list of structs of a key and a value.
  void map(const Node& node, int64_t begin, int64_t end) {
    const Node& entries = node.children.front();
    if (begin < 0 || end < begin || end > entries.array->length) fail_outside();
    out_ += '{';
    for (int64_t i = begin; i < end; ++i) {
      if (i > begin) out_ += ", ";
      const int64_t at = entries.array->offset + i;
      const size_t key = out_.size();
      write(entries.children[0], at);
      if (out_[key] != '"') {  // keys of JSON are texts
        out_.insert(key, 1, '"');
        out_ += '"';
      }
      out_ += ": ";
      write(entries.children[1], at);
    }
    out_ += '}';
  }

  std::string& out_;
  size_t most_;
};

}  // namespace

JsonCells::JsonCells(const ArrowSchema& schema) : root_(std::make_unique<Node>(make_node(schema, 0))) {
  if (root_->kind != CellKind::structure) fail_input("has no columns.");
}
JsonCells::~JsonCells() = default;
JsonCells::JsonCells(JsonCells&&) noexcept = default;
JsonCells& JsonCells::operator=(JsonCells&&) noexcept = default;

void JsonCells::bind(const ArrowArray& batch) { bind_node(*root_, batch); }

bool JsonCells::append_row(std::string& out, int64_t row, int64_t most_bytes) const {
  try {
    CellWriter(out, most_bytes).write(*root_, row);
    return true;
  } catch (const RowTooLong&) {
    return false;
  }
}

}  // namespace megatrain
