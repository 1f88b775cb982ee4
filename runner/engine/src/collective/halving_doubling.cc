// Recursive halving and doubling among a power of two of ranks.
#include <bit>

#include "algorithm.h"

namespace chakrascope::engine {
namespace {

class HalvingDoubling final : public Algorithm {
  public:
    HalvingDoubling(Rank& rank, Stream& stream) : Algorithm(rank, stream) {
        const Phase& phase = stream.phase();
        kind_ = phase.kind;
        rounds_ = std::bit_width(static_cast<std::uint32_t>(ring_.count)) - 1;
        sends_left_ = kind_ == Collective::AllReduce ? 2 * rounds_ : rounds_;
        halving_ = kind_ != Collective::AllGather;
        message_ = halving_ ? phase.size / 2 : phase.size;
        offset_ = halving_ ? 1 : ring_.count / 2;
    }

    void start() override { inject(); }

  private:
    struct Queued {
        std::uint64_t size;
        std::int32_t peer;
    };

    void received(std::uint64_t) override { inject(); }

    // Between a send and its answer nothing is queued, so that one place is enough.
    void inject() {
        if (plain_left_ == 0 && reduced_left_ == 0) {
            plain_left_ = 1;
            reduced_left_ = rounds_ - 1;
            reducing_ = !reducing_;
        }
        queued_ = {message_, partner()};
        waiting_ = true;
        if (plain_left_ > 0) {
            --plain_left_;
            bundle(false, false, Side::ToMemory, message_);
        } else {
            const bool processed =
                kind_ == Collective::ReduceScatter || (kind_ == Collective::AllReduce && reducing_);
            const bool send_back = reduced_left_ > 1;
            --reduced_left_;
            bundle(processed, send_back, Side::ToNpu, message_);
        }
        advance();
    }

    void advance() {
        if (!halving_) {
            offset_ /= 2;
            message_ *= 2;
            return;
        }
        offset_ *= 2;
        message_ /= 2;
        if (kind_ == Collective::AllReduce && offset_ == ring_.count) {
            halving_ = false;
            offset_ = ring_.count / 2;
            message_ *= 2;
        }
    }

    std::int32_t partner() const {
        if (offset_ == 0 || offset_ >= ring_.count) return ring_.position;
        return ring_.neighbour((ring_.position / offset_) % 2 == 0 ? offset_ : -offset_);
    }

    void credited(std::uint64_t) override {
        ++credits_;
        if (waiting_ && sends_left_ > 0) {
            const Queued next = queued_;
            waiting_ = false;
            --sends_left_;
            --credits_;
            send(next.peer, next.size);
            receive(next.peer, next.size);
        }
        if (sends_left_ == 0 && credits_ == 1) finish();
    }

    Collective kind_;
    int rounds_;
    int sends_left_;
    bool halving_;
    std::uint64_t message_;
    std::int32_t offset_;
    Queued queued_{};
    bool waiting_ = false;
    int credits_ = 0;
    int plain_left_ = 0, reduced_left_ = 0;
    bool reducing_ = false;
};

}  // namespace

std::unique_ptr<Algorithm> make_halving_doubling(Rank& rank, Stream& stream) {
    return std::make_unique<HalvingDoubling>(rank, stream);
}

}  // namespace chakrascope::engine
