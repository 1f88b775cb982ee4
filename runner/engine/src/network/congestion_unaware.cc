// The congestion-unaware network: every message takes its latency and serialization time, and never
// queues.
#include <algorithm>

#include "../errors.h"
#include "network.h"
#include "topology.h"

namespace chakrascope::engine {
namespace {

class UnawareNetwork final : public Network {
  public:
    UnawareNetwork(const Config& config, EventQueue& events, Mailbox& mailbox)
        : events_(events), mailbox_(mailbox) {
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

  private:
    struct Dimension {
        Shape shape;
        int count;
        double latency;
        double bandwidth;
    };

    // Only the lowest dimension in which the two ranks differ adds latency.
    Time time(Route route, std::uint64_t size) const {
        int source = route.source, destination = route.destination;
        for (const Dimension& dimension : dimensions_) {
            const int from = source % dimension.count, to = destination % dimension.count;
            if (from != to) {
                const double serialization = static_cast<double>(size) / dimension.bandwidth;
                return truncate(hops(dimension, from, to) * dimension.latency + serialization);
            }
            source /= dimension.count;
            destination /= dimension.count;
        }
        return 0;
    }

    static int hops(const Dimension& dimension, int from, int to) {
        if (dimension.shape == Shape::FullyConnected) return 1;
        if (dimension.shape == Shape::Switch) return 2;
        const int clockwise = (to - from + dimension.count) % dimension.count;
        return std::min(clockwise, dimension.count - clockwise);
    }

    EventQueue& events_;
    Mailbox& mailbox_;
    std::vector<Dimension> dimensions_;
    std::vector<LinkUse> links_;
};

}  // namespace

std::unique_ptr<Network> make_unaware_network(const Config& config, EventQueue& events, Mailbox& mailbox) {
    return std::make_unique<UnawareNetwork>(config, events, mailbox);
}

}  // namespace chakrascope::engine
