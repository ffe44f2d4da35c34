// Formats tensors like NumPy's arrays, with the defaults of numpy.set_printoptions except for the digits.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <ostream>
#include <string>
#include <vector>

#include "framework/cuda/cuda.h"
#include "framework/tensor/tensor.h"

namespace mpigrad {
namespace {

constexpr std::int64_t most_elements = 1000, edge = 3;
constexpr std::size_t line_length = 100;

// The shown elements of a tensor, row-major.
class Shown {
 public:
  explicit Shown(const Tensor& x) : x_(x), cut_(x.elements() > most_elements) {
    if (x.device() == DeviceKind::cuda && !cut_) x_ = detail::copied(x, DeviceKind::cpu);
    read(0, 0);
  }

  bool cut(int dimension) const { return cut_ && x_.dim(dimension) > 2 * edge; }
  std::int64_t extent(int dimension) const { return cut(dimension) ? 2 * edge : x_.dim(dimension); }

  // Of a complex tensor: real and imaginary part of each element.
  template <class T>
  std::vector<T> as() const {
    std::vector<T> values;
    visit_any(real_type(x_.dtype()), [&](auto zero) {
      using Stored = decltype(zero);
      for (std::size_t at = 0; at < bytes_.size(); at += sizeof(Stored)) {
        Stored value{};
        std::memcpy(&value, bytes_.data() + at, sizeof(Stored));
        values.push_back(static_cast<T>(value));
      }
    });
    return values;
  }

 private:
  // Reads along `dimension` the elements whose row-major index over the dimensions before it is `index`.
  void read(int dimension, std::int64_t index) {
    if (dimension == x_.rank()) return copy(index, 1);
    const auto n = x_.dim(dimension), first = cut(dimension) ? edge : n;
    if (dimension == x_.rank() - 1) {
      copy(index * n, first);
      if (first < n) copy(index * n + n - edge, edge);
      return;
    }
    for (std::int64_t i = 0; i < n; i = i + 1 == first && first < n ? n - edge : i + 1) read(dimension + 1, index * n + i);
  }
  void copy(std::int64_t first, std::int64_t count) {
    const auto size = size_of(x_.dtype()), bytes = count * size;
    const auto at = bytes_.size();
    bytes_.resize(at + static_cast<std::size_t>(bytes));
    if (bytes == 0) return;
    if (x_.device() == DeviceKind::cuda) cuda::copy_to_host(bytes_.data() + at, x_.raw() + first * size, bytes);
    else std::memcpy(bytes_.data() + at, x_.raw() + first * size, static_cast<std::size_t>(bytes));
  }

  Tensor x_;
  bool cut_;
  std::vector<std::byte> bytes_;
};

// Numbers of one form with as many decimals as the largest and the smallest need; trailing zeros common to all are omitted.
std::vector<std::string> texts_of(const std::vector<double>& values, int digits) {
  double largest = 0, smallest = HUGE_VAL;
  bool whole = true;
  for (const double value : values) {
    if (!std::isfinite(value) || value == 0) continue;
    largest = std::max(largest, std::abs(value)), smallest = std::min(smallest, std::abs(value));
    whole = whole && value == std::nearbyint(value);
  }
  // The limits are NumPy's.
  const bool scientific = largest >= 1e8 || (!whole && (smallest < 1e-4 || largest > 1000 * smallest));
  const auto power = [](double value) { return static_cast<int>(std::floor(std::log10(value))); };
  const int decimals = scientific ? digits - 1
                       : whole    ? 0
                                  : std::max(digits - 1 - std::max(power(smallest), std::min(power(largest), 0)), 0);
  std::vector<std::string> texts;
  std::size_t zeros = 100;
  const auto end_of = [](const std::string& text) { return std::min(text.find('e'), text.size()); };
  for (const double value : values) {
    texts.push_back(scientific ? fmt::format("{:#.{}e}", value, decimals) : fmt::format("{:#.{}f}", value, decimals));
    if (!std::isfinite(value)) continue;
    const auto& text = texts.back();
    const auto end = end_of(text);
    zeros = std::min(zeros, end - 1 - text.find_last_not_of('0', end - 1));
  }
  for (std::size_t i = 0; i < values.size(); ++i)
    if (std::isfinite(values[i])) texts[i].erase(end_of(texts[i]) - zeros, zeros);
  return texts;
}

std::vector<std::string> texts_of(const Shown& shown, DType type, int digits) {
  if (is_floating(type)) return texts_of(shown.as<double>(), digits);
  std::vector<std::string> texts;
  if (is_complex(type)) {
    const auto parts = texts_of(shown.as<double>(), digits);
    for (std::size_t i = 0; i < parts.size(); i += 2)
      texts.push_back(parts[i] + (parts[i + 1].front() == '-' ? "" : "+") + parts[i + 1] + "i");
    return texts;
  }
  for (const auto value : shown.as<std::int64_t>())
    texts.push_back(type == DType::boolean ? (value != 0 ? "true" : "false") : std::to_string(value));
  return texts;
}

class Brackets {
 public:
  Brackets(const Shown& shown, int rank, std::vector<std::string> texts) : shown_(shown), rank_(rank), texts_(std::move(texts)) {
    for (const auto& text : texts_) width_ = std::max(width_, text.size());
  }

  std::string text() {
    add(0);
    return std::move(text_);
  }

 private:
  void add(int dimension) {
    if (dimension == rank_) return append(texts_[next_++]);
    text_ += '[';
    const auto n = shown_.extent(dimension);
    for (std::int64_t i = 0; i < n; ++i) {
      if (i > 0) separate(dimension);
      if (i == edge && shown_.cut(dimension)) append("..."), separate(dimension);
      add(dimension + 1);
    }
    text_ += ']';
  }
  void append(const std::string& word) {
    const auto line = text_.size() - (text_.rfind('\n') + 1);  // npos + 1 is 0
    if (line + std::max(word.size(), width_) >= line_length && text_.back() == ' ') {
      text_.back() = '\n';
      text_.append(static_cast<std::size_t>(rank_), ' ');
    }
    if (word != "...") text_.append(width_ - word.size(), ' ');
    text_ += word;
  }
  void separate(int dimension) {
    if (dimension == rank_ - 1) {
      text_ += ' ';
      return;
    }
    text_.append(static_cast<std::size_t>(rank_ - 1 - dimension), '\n');
    text_.append(static_cast<std::size_t>(dimension) + 1, ' ');
  }

  const Shown& shown_;
  int rank_;
  std::vector<std::string> texts_;
  std::size_t width_ = 0, next_ = 0;
  std::string text_;
};

std::string type_text(const Tensor& x) {
  auto text = to_string(x);
  if (x.layout()) text += fmt::format("; the block of rank {} of {}", x.layout()->grid->rank, x.layout()->grid->ranks());
  if (x.device() != DeviceKind::cpu) text += fmt::format("; on device {}", name_of(x.device()));
  return text;
}

}  // namespace

std::string detail::values_text(const Tensor& x, int digits) {
  if (!x) return "none";
  if (x.device() == DeviceKind::dry) return type_text(x) + ", without values";
  if (!x.storage()) return type_text(x) + "; its values were not kept";
  if (x.elements() == 0) return "[] " + type_text(x);
  warn_if_partial("print", x);
  const Shown shown(x.without_layout());
  const auto text = Brackets(shown, x.rank(), texts_of(shown, x.dtype(), std::clamp(digits, 1, 17))).text();
  return text + (text.find('\n') == std::string::npos ? " " : "\n") + type_text(x);
}

std::string detail::values_text(const std::vector<Tensor>& tensors, int digits) {
  std::string text;
  for (const auto& x : tensors) text += (text.empty() ? "" : "\n") + values_text(x, digits);
  return text;
}

void print(const Tensor& x) { fmt::print("{}\n", x); }
void print(const std::vector<Tensor>& tensors) { fmt::print("{}\n", tensors); }
std::ostream& operator<<(std::ostream& out, const Tensor& x) { return out << fmt::format("{}", x); }
std::ostream& operator<<(std::ostream& out, const std::vector<Tensor>& tensors) { return out << fmt::format("{}", tensors); }

}  // namespace mpigrad

fmt::format_context::iterator fmt::formatter<mpigrad::Tensor>::format(const mpigrad::Tensor& x,
                                                                      fmt::format_context& context) const {
  return fmt::format_to(context.out(), "{}", mpigrad::detail::values_text(x, digits));
}

fmt::format_context::iterator fmt::formatter<std::vector<mpigrad::Tensor>>::format(const std::vector<mpigrad::Tensor>& tensors,
                                                                                   fmt::format_context& context) const {
  return fmt::format_to(context.out(), "{}", mpigrad::detail::values_text(tensors, digits));
}

fmt::format_context::iterator fmt::formatter<mpigrad::detail::TensorSummary>::format(const mpigrad::detail::TensorSummary& x,
                                                                                     fmt::format_context& context) const {
  return fmt::format_to(context.out(), "{}", mpigrad::to_string(x.tensor));
}
