// Recursive halving and doubling among 2^k ranks.
#include "halving_doubling.h"

#include <bit>

#include "algorithm.h"

namespace chakrascope::engine {
namespace {

class HalvingDoubling final : public Algorithm {
  public:
    HalvingDoubling(Rank& rank, Stream& stream)
        : Algorithm(rank, stream),
          steps_(stream.phase().kind, ring_.count, stream.phase().size),
          sends_left_(steps_.sends()) {}

    void start() override { inject(); }

  private:
    void received(std::uint64_t) override { inject(); }

    // Queue the data of the next step. One slot is enough, because no other data is queued between a
    // send and its answer.
    void inject() {
        queued_ = steps_.next();
        waiting_ = true;
        const Side side = queued_.plain ? Side::ToMemory : Side::ToNpu;
        bundle(queued_.processed, queued_.send_back, side, queued_.size);
    }

    void credited(std::uint64_t) override {
        ++credits_;
        if (waiting_ && sends_left_ > 0) {
            waiting_ = false;
            --sends_left_;
            --credits_;
            const std::int32_t peer = partner_of(ring_, queued_.offset);
            send(peer, queued_.size);
            receive(peer, queued_.size);
        }
        if (sends_left_ == 0 && credits_ == 1) finish();
    }

    HalvingDoublingSteps steps_;
    int sends_left_;
    HalvingDoublingSteps::Step queued_{};
    bool waiting_ = false;
    int credits_ = 0;
};

}  // namespace

HalvingDoublingSteps::HalvingDoublingSteps(Collective kind, std::int32_t members, std::uint64_t size)
    : kind_(kind),
      members_(members),
      rounds_(std::bit_width(static_cast<std::uint32_t>(members)) - 1),
      halving_(kind != Collective::AllGather),
      message_(halving_ ? size / 2 : size),
      offset_(halving_ ? 1 : members / 2) {}

HalvingDoublingSteps::Step HalvingDoublingSteps::next() {
    if (plain_left_ == 0 && reduced_left_ == 0) {
        plain_left_ = 1;
        reduced_left_ = rounds_ - 1;
        reducing_ = !reducing_;
    }
    Step step{message_, offset_, plain_left_ > 0, false, false};
    if (step.plain) {
        --plain_left_;
    } else {
        step.processed = kind_ == Collective::ReduceScatter || (kind_ == Collective::AllReduce && reducing_);
        step.send_back = reduced_left_ > 1;
        --reduced_left_;
    }
    advance();
    return step;
}

void HalvingDoublingSteps::advance() {
    if (!halving_) {
        offset_ /= 2;
        message_ *= 2;
        return;
    }
    offset_ *= 2;
    message_ /= 2;
    if (kind_ == Collective::AllReduce && offset_ == members_) {
        halving_ = false;
        offset_ = members_ / 2;
        message_ *= 2;
    }
}

std::unique_ptr<Algorithm> make_halving_doubling(Rank& rank, Stream& stream) {
    return std::make_unique<HalvingDoubling>(rank, stream);
}

}  // namespace chakrascope::engine
