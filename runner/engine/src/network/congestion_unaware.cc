// The congestion-unaware network, in which the time of a message is its latency plus its serialization
// time, and messages never queue. ASTRA-sim charges a message only for the lowest dimension in which its
// two ranks differ. With trace semantics, a message is charged for the latency of every dimension in
// which the ranks differ, and for the bandwidth of the slowest of these dimensions.
#include <algorithm>

#include "../errors.h"
#include "network.h"
#include "topology.h"

namespace chakrascope::engine {
namespace {

class UnawareNetwork final : public Network {
  public:
    UnawareNetwork(const Config& config, EventQueue& events, Mailbox& mailbox)
        : events_(events), mailbox_(mailbox), lowest_alone_(config.semantics == Semantics::AstraSim) {
        for (std::size_t i = 0; i < config.topology.size(); ++i) {
            dimensions_.push_back({shape_of(config.topology[i]), config.npus_count[i], config.latency[i],
                                   bytes_per_ns(config.reached_bandwidth(i))});
        }
    }

    void carry(std::uint32_t message) override {
        const Time delay = time(mailbox_.route(message), mailbox_.size(message));
        events_.at(events_.now() + delay, bind<&Mailbox::arrived>(&mailbox_, message));
    }

    std::optional<Time> delay(Route route, std::uint64_t size) const override { return time(route, size); }

    const std::vector<LinkUse>& links() const override { return links_; }

    const Undercharged* undercharged() const override { return &undercharged_; }

  private:
    struct Dimension {
        Shape shape;
        int count;
        double latency;
        double bandwidth;
    };

    Time time(Route route, std::uint64_t size) const {
        double latency = 0, serialization = 0;
        Time lowest = 0;
        int differing = 0, source = route.source, destination = route.destination;
        for (const Dimension& dimension : dimensions_) {
            if (source == destination) break;
            const int from = source % dimension.count, to = destination % dimension.count;
            if (from != to) {
                latency += hops(dimension, from, to) * dimension.latency;
                serialization = std::max(serialization, static_cast<double>(size) / dimension.bandwidth);
                if (++differing == 1) lowest = truncate(latency + serialization);
            }
            source /= dimension.count;
            destination /= dimension.count;
        }
        if (differing < 2) return lowest;
        const Time whole = truncate(latency + serialization);
        if (!lowest_alone_) return whole;
        if (whole - lowest > undercharged_.whole - undercharged_.charged)
            undercharged_ = {route, size, lowest, whole};
        return lowest;
    }

    static int hops(const Dimension& dimension, int from, int to) {
        if (dimension.shape == Shape::FullyConnected) return 1;
        if (dimension.shape == Shape::Switch) return 2;
        const int clockwise = (to - from + dimension.count) % dimension.count;
        return std::min(clockwise, dimension.count - clockwise);
    }

    EventQueue& events_;
    Mailbox& mailbox_;
    const bool lowest_alone_;  // whether only the lowest dimension is charged, as in ASTRA-sim
    mutable Undercharged undercharged_;
    std::vector<Dimension> dimensions_;
    std::vector<LinkUse> links_;
};

}  // namespace

std::unique_ptr<Network> make_unaware_network(const Config& config, EventQueue& events, Mailbox& mailbox) {
    return std::make_unique<UnawareNetwork>(config, events, mailbox);
}

}  // namespace chakrascope::engine
