#include "models/losses/contrastive/batch.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "comm/distributed/grid.h"
#include "ops/elementwise/elementwise.h"
#include "ops/reduce/reduce.h"

namespace mpigrad::contrastive {
namespace {

enum class Fault : std::int64_t { none, not_matrix, views_differ, layout, labels };
enum class Flaw : std::int64_t { none, not_finite, zero };

// The description of a rank's views, sent to the others.
struct Header {
  std::int64_t rows = 0, width = 0, dtype = 0;
  Fault fault = Fault::none;
  std::int64_t sample = -1, view = 0;  // the first invalid one
  Flaw flaw = Flaw::none;
  double temperature = 1, learned = 0;
};
constexpr std::size_t words = sizeof(Header) / sizeof(std::int64_t);

// Finds the first sample whose squared norm, computed in the type of the embeddings, is not finite or (with refuse_zeros) zero.
template <class T>
void find_flaw(const T* squares, const Header& header, std::int64_t view, const BatchRules& rules, Header& result) {
  for (std::int64_t i = 0; i < header.rows && (result.sample < 0 || i < result.sample); ++i) {
    const auto flaw = !std::isfinite(squares[i])                    ? Flaw::not_finite
                      : rules.refuse_zeros && squares[i] < T(1e-24) ? Flaw::zero
                                                                    : Flaw::none;
    if (flaw == Flaw::none) continue;
    result.sample = i, result.view = view, result.flaw = flaw;
    return;
  }
}

Header header_of(const Tensors& views, const Communicator& comm, const BatchRules& rules) {
  Header result;
  result.temperature = rules.temperature;
  result.learned = rules.learned;
  const auto& z = views[0];
  if (z.rank() != 2 || !is_floating(z.dtype())) return result.fault = Fault::not_matrix, result;
  result.rows = z.dim(0), result.width = z.dim(1), result.dtype = static_cast<std::int64_t>(z.dtype());
  for (const auto& view : views) {
    if (view.type() != z.type()) result.fault = Fault::views_differ;
    if (view.layout() && sample_group(view).size() != comm.size()) result.fault = Fault::layout;
  }
  if (result.fault == Fault::none && !rules.labels_fit) result.fault = Fault::labels;
  return result;
}

std::string where(const Header& header, std::size_t rank, std::int64_t first, std::size_t views) {
  auto text = fmt::format("sample {} (rank {}, its sample {}", first + header.sample, rank, header.sample);
  return text + (views > 1 ? fmt::format(", view {})", header.view) : ")");
}

void require_usable(std::string_view loss, const std::vector<Header>& headers, std::size_t views, const BatchRules& rules) {
  const auto& lowest = headers[0];
  std::int64_t all = 0;
  for (std::size_t r = 0; r < headers.size(); ++r) {
    const auto& h = headers[r];
    require(h.fault != Fault::not_matrix,
            "[{}] embeddings are floating-point matrices [samples, width]; those of rank {} are not", loss, r);
    require(h.fault != Fault::views_differ, "[{}] all views have one shape and type; those of rank {} differ", loss, r);
    require(h.fault != Fault::layout, "[{}] the embeddings of rank {} are split over other ranks than those of the loss", loss,
            r);
    require(h.fault != Fault::labels, "[{}] each row has one label, int64; the labels of rank {} are others", loss, r);
    require(std::isfinite(h.temperature) && h.temperature > 0, "[{}] the temperature is positive and finite, got {} on rank {}",
            loss, h.temperature, r);
    require(std::isfinite(h.learned), "[{}] the learned scale or bias is not finite on rank {}: {}", loss, r, h.learned);
    require(h.width == lowest.width, "[{}] ranks have embeddings of different widths: {} on rank 0, {} on rank {}", loss,
            lowest.width, h.width, r);
    require(h.dtype == lowest.dtype, "[{}] ranks have embeddings of different types: {} on rank 0, {} on rank {}", loss,
            name_of(static_cast<DType>(lowest.dtype)), name_of(static_cast<DType>(h.dtype)), r);
    require(h.temperature == lowest.temperature, "[{}] ranks have different temperatures: {} on rank 0, {} on rank {}", loss,
            lowest.temperature, h.temperature, r);
    require(h.learned == lowest.learned, "[{}] the learned scale or bias differs between ranks: {} on rank 0, {} on rank {}",
            loss, lowest.learned, h.learned, r);
    all += h.rows;
  }
  require(lowest.width > 0, "[{}] embeddings have width 0", loss);
  require(all >= rules.smallest, "[{}] needs at least {} samples in all ranks together, the batch has {}", loss, rules.smallest,
          all);
  std::int64_t first = 0;
  for (std::size_t r = 0; r < headers.size(); first += headers[r++].rows) {
    const auto& h = headers[r];
    if (h.flaw != Flaw::not_finite && h.flaw != Flaw::zero) continue;
    const bool zero = h.flaw == Flaw::zero;
    const std::string flaw = zero ? "is zero and has no direction" : "is not finite";
    throw SampleError(fmt::format("[{}] the embedding of {} {}{}", loss, where(h, r, first, views), flaw,
                                  zero ? " (refuse_zeros = false allows it)" : ""),
                      {.rank = static_cast<int>(r), .row = h.sample, .flaw = flaw});
  }
}

LayoutPtr share_layout(const Layout& of_view) {
  Layout result = of_view;
  result.global = Shape();
  for (auto& axis : result.axes)
    if (axis.placement == Placement::split) axis = {Placement::partial, -1, {}};
  return std::make_shared<Layout>(std::move(result));
}

}  // namespace

Communicator sample_group(const Tensor& z) {
  require(z.layout() != nullptr, "[sample_group] the tensor is not distributed: {}", z);
  std::vector<int> axes;
  for (int a = 0; a < static_cast<int>(z.layout()->axes.size()); ++a) {
    const auto& axis = z.layout()->axes[static_cast<std::size_t>(a)];
    require(axis.placement == Placement::replicated || (axis.placement == Placement::split && axis.dimension == 0),
            "[sample_group] the embedding of a sample is split over ranks: {}", z);
    if (axis.placement == Placement::split) axes.push_back(a);
  }
  return grid_of(*z.layout()).along(axes);
}

Batch inspect(std::string_view loss, const Tensors& views, const Communicator& comm, const BatchRules& rules) {
  require(!views.empty(), "[{}] there are no views", loss);
  Header mine = header_of(views, comm, rules);
  Batch batch;
  batch.comm = comm;
  batch.width = mine.width;
  for (const auto& view : views) {
    const auto plain = view.without_layout();
    if (mine.fault != Fault::none) continue;
    batch.views.push_back(is_half(plain.dtype()) ? cast(plain, DType::float32) : plain);
    if (!batch.views.back().raw()) continue;
    const Untaped scope;
    auto squares = sum(square(batch.views.back()), {1});
    if (squares.device() == DeviceKind::cuda) squares = detail::copied(squares, DeviceKind::cpu);  // the host waits
    visit_floating(squares.dtype(), [&](auto zero) {
      find_flaw(squares.data<decltype(zero)>(), mine, static_cast<std::int64_t>(batch.views.size()) - 1, rules, mine);
    });
  }
  std::vector<Header> headers(static_cast<std::size_t>(comm.size()), mine);
  if (comm.transport().can_ask()) {
    const Rows counts(headers.size(), words);
    comm.transport().allgather(&mine, headers.data(), counts, DType::int64);
  }
  require_usable(loss, headers, views.size(), rules);
  for (const auto& header : headers) batch.rows.push_back(header.rows);
  batch.here = mine.rows;
  batch.first = std::accumulate(batch.rows.begin(), batch.rows.begin() + comm.rank(), std::int64_t{0});
  batch.all = std::accumulate(batch.rows.begin(), batch.rows.end(), std::int64_t{0});
  if (views[0].layout()) batch.layout = share_layout(*views[0].layout());
  return batch;
}

Tensor unit_rows(const Tensor& z) {
  return z / sqrt(clamp(sum(square(z), {1}, true), 1e-24, std::numeric_limits<double>::infinity()));
}

Tensor diagonal(std::int64_t rows, std::int64_t columns, std::int64_t first, DeviceKind device) {
  const bool gpu = device == DeviceKind::cuda;
  Tensor mask({Shape{rows, columns}, DType::boolean}, gpu ? DeviceKind::cpu : device);
  if (auto* mark = mask.raw()) {
    std::memset(mark, 0, static_cast<std::size_t>(mask.bytes()));
    for (std::int64_t i = 0; i < rows; ++i) mark[i * columns + first + i] = std::byte{1};
  }
  return constant(gpu ? detail::copied(mask, device) : mask);
}

Tensor masked(const Tensor& x, const Tensor& condition, double value) {
  UseDevice device(x.device());
  return mpigrad::where(condition, constant(full({}, value, x.dtype())), x);
}

MatrixRows matrix_rows(const Tensor& local, const Communicator& comm) {
  const auto cuts = balanced_cuts(local.dim(0), comm.size());
  return {reduce_scatter(local, comm), cuts[static_cast<std::size_t>(comm.rank())]};
}

}  // namespace mpigrad::contrastive
