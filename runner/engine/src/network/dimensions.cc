#include "network.h"
#include "topology.h"

namespace chakrascope::engine {
namespace {

class Dimensions final : public Topology {
  public:
    explicit Dimensions(const Config& config) : ranks_(static_cast<std::int32_t>(config.num_ranks())) {
        std::int32_t stride = 1, switches = ranks_;
        for (std::size_t d = 0; d < config.topology.size(); ++d) {
            Dimension dimension{};
            dimension.shape = shape_of(config.topology[d]);
            dimension.count = config.npus_count[d];
            dimension.stride = stride;
            dimension.first_link = links_.size();
            dimension.first_switch = switches;
            dimensions_.push_back(dimension);
            add_links(dimension, bytes_per_ns(config.reached_bandwidth(d)), config.latency[d]);
            if (dimension.shape == Shape::Switch) switches += ranks_ / dimension.count;
            stride *= dimension.count;
        }
    }

    std::size_t next(std::int32_t device, std::int32_t destination) override {
        if (device >= ranks_) return from_switch(device, destination);
        for (const Dimension& dimension : dimensions_) {
            const std::int32_t from = dimension.coordinate(device), to = dimension.coordinate(destination);
            if (from != to) return from_rank(dimension, device, from, to);
        }
        return from_rank(dimensions_.front(), device, 0, 0);  // from a rank to itself, through a switch
    }

  private:
    struct Dimension {
        Shape shape;
        std::int32_t count;
        std::int32_t stride;
        std::size_t first_link;
        std::int32_t first_switch;

        std::int32_t coordinate(std::int32_t rank) const { return rank / stride % count; }
        // Return the number of the group of ranks that differ from `rank` only in this dimension.
        std::int32_t group(std::int32_t rank) const {
            return rank / (stride * count) * stride + rank % stride;
        }
        std::int32_t moved(std::int32_t rank, std::int32_t coordinate_to) const {
            return rank + (coordinate_to - coordinate(rank)) * stride;
        }
    };

    // Add the links of a dimension. Each rank has a clockwise and a counter-clockwise link (ring), an
    // up link and a down link (switch), or a link to each coordinate (fully connected).
    void add_links(const Dimension& dimension, double bandwidth, double latency) {
        const auto add = [&](std::int32_t from, std::int32_t to) {
            links_.push_back({from, to, bandwidth, latency});
        };
        const std::int32_t count = dimension.count;
        if (count < 2 && dimension.shape != Shape::Switch) return;
        const auto rank_switch = [&](std::int32_t rank) {
            return dimension.first_switch + dimension.group(rank);
        };
        for (std::int32_t rank = 0; rank < ranks_; ++rank) {
            const std::int32_t place = dimension.coordinate(rank);
            if (dimension.shape == Shape::Ring) add(rank, dimension.moved(rank, (place + 1) % count));
            if (dimension.shape == Shape::Switch) add(rank, rank_switch(rank));
            if (dimension.shape != Shape::FullyConnected) continue;
            for (std::int32_t to = 0; to < count; ++to) add(rank, dimension.moved(rank, to));
        }
        if (dimension.shape == Shape::FullyConnected) return;
        for (std::int32_t rank = 0; rank < ranks_; ++rank) {
            const std::int32_t place = dimension.coordinate(rank);
            if (dimension.shape == Shape::Ring) add(rank, dimension.moved(rank, (place + count - 1) % count));
            if (dimension.shape == Shape::Switch) add(rank_switch(rank), rank);
        }
    }

    std::size_t from_rank(const Dimension& dimension, std::int32_t rank, std::int32_t from,
                          std::int32_t to) const {
        const auto place = static_cast<std::size_t>(rank), count = static_cast<std::size_t>(dimension.count);
        const std::size_t base = dimension.first_link;
        if (dimension.shape == Shape::Switch) return base + place;
        if (dimension.shape == Shape::FullyConnected)
            return base + place * count + static_cast<std::size_t>(to);
        const std::int32_t clockwise = (to - from + dimension.count) % dimension.count;
        // If the destination is halfway around the ring, both directions have the same length, and the
        // message goes clockwise.
        const bool onwards = clockwise <= dimension.count - clockwise;
        return base + place + (onwards ? 0 : static_cast<std::size_t>(ranks_));
    }

    std::size_t from_switch(std::int32_t device, std::int32_t destination) const {
        std::size_t d = dimensions_.size() - 1;
        while (dimensions_[d].shape != Shape::Switch || dimensions_[d].first_switch > device) --d;
        const Dimension& dimension = dimensions_[d];
        const std::int32_t group = device - dimension.first_switch;
        const std::int32_t first =
            group / dimension.stride * dimension.stride * dimension.count + group % dimension.stride;
        const std::int32_t rank = dimension.moved(first, dimension.coordinate(destination));
        return dimension.first_link + static_cast<std::size_t>(ranks_) + static_cast<std::size_t>(rank);
    }

    const std::int32_t ranks_;
    std::vector<Dimension> dimensions_;
};

}  // namespace

std::unique_ptr<Topology> make_dimensions(const Config& config) {
    return std::make_unique<Dimensions>(config);
}

}  // namespace chakrascope::engine
