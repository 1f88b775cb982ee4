// Collectives with a root: broadcast and reduce along a binomial tree, gather and scatter directly.
//
// ASTRA-sim simulates none of these collectives: it replays the recorded time of a broadcast, and
// refuses reduce, gather and scatter.
#include <bit>

#include "algorithm.h"

namespace chakrascope::engine {
namespace {

class Rooted final : public Algorithm {
  public:
    Rooted(Rank& rank, Stream& stream) : Algorithm(rank, stream), size_(stream.phase().size) {
        const Phase& phase = stream.phase();
        place_ = (ring_.position - phase.root + ring_.count) % ring_.count;
        towards_root_ = phase.kind == Collective::Reduce || phase.kind == Collective::Gather;
        processed_ = phase.kind == Collective::Reduce;
        if (phase.kind == Collective::Gather || phase.kind == Collective::Scatter) {
            for (std::int32_t child = 1; place_ == 0 && child < ring_.count; ++child)
                children_.push_back(child);
            parent_ = 0;
            return;
        }
        const auto number = static_cast<std::uint32_t>(place_);
        const std::int32_t below =
            place_ == 0 ? static_cast<std::int32_t>(std::bit_ceil(static_cast<std::uint32_t>(ring_.count)))
                        : std::int32_t{1} << std::countr_zero(number);
        for (std::int32_t step = below / 2; step > 0; step /= 2) {
            if (place_ + step < ring_.count) children_.push_back(place_ + step);
        }
        parent_ = place_ == 0 ? 0 : place_ - below;
    }

    void start() override {
        expected_ = towards_root_ ? children_.size() : (place_ == 0 ? 0 : 1);
        if (expected_ == 0) return bundle(false, false, Side::ToMemory, size_);
        if (!towards_root_) return receive(absolute(parent_), size_);
        for (const std::int32_t child : children_) receive(absolute(child), size_);
    }

  private:
    // Convert a position relative to the root to a position in the ring.
    std::int32_t absolute(std::int32_t place) const { return (place + stream_.phase().root) % ring_.count; }

    void received(std::uint64_t) override { bundle(processed_, false, Side::ToNpu, size_); }

    void credited(std::uint64_t) override {
        if (++credits_ < expected_) return;
        if (!towards_root_) {
            for (const std::int32_t child : children_) pass_on(child);
        } else if (place_ != 0) {
            pass_on(parent_);
        }
        finish();
    }

    // Send data to a child without waiting. All chunks of a broadcast or scatter therefore leave in one
    // tick.
    void pass_on(std::int32_t place) { send(absolute(place), size_, true); }

    const std::uint64_t size_;
    std::int32_t place_ = 0;  // position relative to the root
    std::int32_t parent_ = 0;
    std::vector<std::int32_t> children_;
    bool towards_root_ = false;
    bool processed_ = false;
    std::size_t expected_ = 0, credits_ = 0;
};

}  // namespace

std::unique_ptr<Algorithm> make_rooted(Rank& rank, Stream& stream) {
    return std::make_unique<Rooted>(rank, stream);
}

}  // namespace chakrascope::engine
